(async()=>{const{$a:r}=await LLAMATH_PAGE;r();})();

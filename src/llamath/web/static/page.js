(async()=>{const{_a:r}=await LLAMATH_PAGE;r();})();

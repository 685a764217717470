(async()=>{const{Qa:r}=await LLAMATH_PAGE;r();})();

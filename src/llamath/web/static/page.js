(async()=>{const{Va:r}=await LLAMATH_PAGE;r();})();

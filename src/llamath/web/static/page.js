(async()=>{const{Pa:r}=await LLAMATH_PAGE;r();})();

(async()=>{const{Xa:r}=await LLAMATH_PAGE;r();})();

(async()=>{const{Wa:r}=await LLAMATH_PAGE;r();})();

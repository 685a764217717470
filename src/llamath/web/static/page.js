(async()=>{const{Ya:r}=await LLAMATH_PAGE;r();})();

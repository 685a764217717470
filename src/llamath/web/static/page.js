(async()=>{const{bb:a}=await LLAMATH_PAGE;a()})();

(async()=>{const{ab:a}=await LLAMATH_PAGE;a()})();

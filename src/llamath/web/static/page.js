(async()=>{const{cb:a}=await LLAMATH_PAGE;a()})();

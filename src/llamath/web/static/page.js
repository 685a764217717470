(async()=>{const{_a:a}=await LLAMATH_PAGE;a()})();

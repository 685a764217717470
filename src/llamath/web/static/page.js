(async()=>{const{$a:a}=await LLAMATH_PAGE;a()})();

let x = 1
x <!--x
--> text("hidden")
return x

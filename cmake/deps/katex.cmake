# Formulas in the chat page, as MathML: that needs neither its fonts nor its style sheet.
mlxcel_recipe(katex
  VERSION 0.16.4+~cs6.1.0-1
  LICENCE MIT
  PACKAGE libjs-katex
  SHARE usr/share/javascript/katex
  PLACES deb:bookworm/libjs-katex_0.16.4+~cs6.1.0-1_all.deb f7da754ceb72d67b4e3ebb99677f747ff0508bf82cea5344b6016d316114bbf7
)

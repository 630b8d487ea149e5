# Colours of code in the chat page; tools/bundle_page.py names the languages that are taken.
mlxcel_recipe(prism
  VERSION 1.29.0+dfsg+~1.26.0-1
  LICENCE MIT
  PACKAGE node-prismjs
  SHARE usr/share/nodejs/prismjs
  PLACES deb:bookworm/node-prismjs_1.29.0+dfsg+~1.26.0-1_all.deb 66365f7e694f28ae4db54f0c20717ed72c60f3f1c08d21a2cc287ad22ebae74a
)

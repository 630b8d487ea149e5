# Markdown in the chat page: the parser alone, whose tokens the page turns into nodes. The version is that of Debian's package.
mlxcel_recipe(markdownit
  VERSION 22.2.3+dfsg+~12.2.3-2
  LICENCE MIT
  PACKAGE node-markdown-it
  SHARE usr/share/nodejs/markdown-it
  PLACES deb:bookworm/node-markdown-it_22.2.3+dfsg+~12.2.3-2_all.deb e05f8693216822dc3f4ff814414ce585bf596c843207d0b4b194513ef7931604
)

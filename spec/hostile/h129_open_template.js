return `${1

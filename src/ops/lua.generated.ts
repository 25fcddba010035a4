// Made by `npm run bundle-lua` from the .lua files. Do not edit.

export const DROP_IF_GONE = "local q=(#KEYS-1)/#ARGV\nfor i,l in ipairs(ARGV)do\nif redis.call('EXISTS',unpack(KEYS,2+(i-1)*q,1+i*q))==0 then\nredis.call('ZREM',KEYS[1],l)\nend\nend\nreturn 1\n"

export const ERASE_CALLER = "local Z=0\nlocal W=redis.call('HGETALL',KEYS[1])\nfor i=1,#W,2 do\nlocal l=false\nlocal D=string.gsub(W[i+1],'(%S+) %d+ %d+ %d+ %S+ ?',function(U)\nfor s in string.gmatch(U,'=([^,]*)')do\nif s==ARGV[1]then U=s end\nend\nif U~=ARGV[1]and U~=ARGV[2]then return end\nl=true\nreturn''\nend)\nif l then\nZ=Z+1\nif ARGV[3]=='erase'then\nif D==''then\nredis.call('HDEL',KEYS[1],W[i])\nelse\nredis.call('HSET',KEYS[1],W[i],D)\nend\nend\nend\nend\nreturn Z\n"

export const FIND_ENTRIES = "local p=redis.call('XREVRANGE',KEYS[1],ARGV[1],ARGV[2],'COUNT',ARGV[3])\nlocal Z={}\nfor i=1,#p do\nlocal h=p[i][2]\nlocal V,W,D=h[6]or'',h[8]or'',h[10]or''\nif(ARGV[5]==''or W==ARGV[5]or string.sub(W,1,#ARGV[5]+1)==ARGV[5]..'/'\nor string.find(D,ARGV[7],1,true))\nand string.sub(V,1,#ARGV[6])==ARGV[6]then\nZ[#Z+1]=p[i]\nif#Z==ARGV[4]+0 then return{Z,p[i][1]}end\nend\nend\nreturn{Z,#p==ARGV[3]+0 and p[#p][1]or''}\n"

export const WRITE = "local i=2\nfor E=1,ARGV[1]+0 do\nlocal s,g=redis.call('GET',ARGV[i])or'',ARGV[i+1]\nif s~=g and(g~='*'or s=='')then return 0 end\ni=i+2\nend\nwhile i<=#ARGV do\nlocal U,n=ARGV[i+1],i+ARGV[i]\nif U=='AUDIT'then\naudit()\nelseif U~='DELETE-IF'then\nredis.call(unpack(ARGV,i+1,n))\nelseif redis.call('GET',ARGV[i+2])==ARGV[i+3]then\nredis.call('DEL',ARGV[i+2])\nend\ni=n+1\nend\nreturn 1\n"

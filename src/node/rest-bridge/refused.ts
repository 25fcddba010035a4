/**
 * Commands that the bridge does not pass on. All callers share one connection, so no command may change its state
 * or make it wait, and no command may stop or reconfigure the server.
 */

const REFUSED = new Set([
  // The state of the shared connection; transactions come as /multi-exec.
  ...['AUTH', 'HELLO', 'RESET', 'QUIT', 'SELECT', 'CLIENT', 'ASKING', 'READONLY', 'READWRITE'],
  ...['MULTI', 'EXEC', 'DISCARD', 'WATCH', 'UNWATCH'],
  ...['SUBSCRIBE', 'PSUBSCRIBE', 'SSUBSCRIBE', 'UNSUBSCRIBE', 'PUNSUBSCRIBE', 'SUNSUBSCRIBE', 'MONITOR'],
  ...['SYNC', 'PSYNC', 'REPLCONF'],
  // Waiting: all callers behind it would wait too.
  ...[
    'BLPOP',
    'BRPOP',
    'BRPOPLPUSH',
    'BLMOVE',
    'BLMPOP',
    'BZPOPMIN',
    'BZPOPMAX',
    'BZMPOP',
    'WAIT',
    'WAITAOF',
  ],
  // The server.
  ...['CONFIG', 'SHUTDOWN', 'DEBUG', 'ACL', 'MODULE', 'CLUSTER', 'REPLICAOF', 'SLAVEOF', 'FAILOVER'],
  ...['MIGRATE', 'SAVE', 'BGSAVE', 'BGREWRITEAOF', 'SWAPDB', 'LATENCY', 'SLOWLOG'],
])

const REFUSED_SUBCOMMANDS = new Map([
  ['SCRIPT', new Set(['KILL', 'DEBUG'])],
  ['FUNCTION', new Set(['KILL'])],
])

const CAN_BLOCK = new Set(['XREAD', 'XREADGROUP'])

/** Why a command is refused, as the error that the caller gets; undefined when it may pass. */
export function refusalOf(command: readonly (string | Buffer)[]): string | undefined {
  const name = upperCase(command[0])
  const isRefused =
    REFUSED.has(name) ||
    REFUSED_SUBCOMMANDS.get(name)?.has(upperCase(command[1])) ||
    (CAN_BLOCK.has(name) && command.some(word => upperCase(word) === 'BLOCK'))
  return isRefused ? `ERR Command is not available over HTTP: '${name.toLowerCase()}'` : undefined
}

const upperCase = (word: string | Buffer = '') => word.toString().toUpperCase()

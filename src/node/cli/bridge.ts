/** `npx sluicegate bridge`: the REST bridge alone, for those who host their own Redis. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import type { BridgeOptions } from '../rest-bridge/bridge.ts'
import { fromVariable, parsePort, parseRedisUrl, parseSeconds } from './arguments.ts'
import { withExamples } from './help.ts'
import { whenNpmIsGone } from './npm-parent.ts'

interface Flags {
  redis?: string
  token?: string
  port: number
  host: string
  deadline: number
}

export function bridgeCommand(): Command {
  const command = new Command('bridge')
    .summary('serve the Upstash REST protocol in front of a Redis')
    .description('Serve the Upstash REST protocol in front of a Redis or Valkey server.')
    .option(
      '--redis <url>',
      'server: redis://…, rediss://… or unix://…; for a cluster, any of its nodes (default: $REDIS_URL)',
      parseRedisUrl,
    )
    .option('--token <token>', 'token that clients must send (default: $SLUICE_BRIDGE_TOKEN)')
    .option('--port <port>', 'port to listen on', parsePort, 8079)
    .option('--host <address>', 'address to listen on; 0.0.0.0 for all interfaces', '127.0.0.1')
    .option('--deadline <seconds>', 'time limit for one command', parseSeconds, 2)
    .action(bridge)
  return withExamples(command, 'bridge --redis redis://127.0.0.1:6379 --token "$TOKEN"')
}

async function bridge(flags: Flags): Promise<void> {
  const { REDIS_URL } = process.env
  const redis = flags.redis ?? (REDIS_URL && fromVariable('REDIS_URL', REDIS_URL, parseRedisUrl))
  const token = flags.token ?? process.env.SLUICE_BRIDGE_TOKEN
  if (!redis)
    throw new AdminError('usage', 'No Redis is set. Use --redis redis://host:port, or set REDIS_URL.')
  if (!token)
    throw new AdminError(
      'usage',
      'No token is set. Use --token, or set SLUICE_BRIDGE_TOKEN. Anyone with the token can read and write all data.',
    )

  // Called at once, because the process id of npm can no longer be found after npm has exited.
  const npmIsGone = new Promise<void>(resolve => void whenNpmIsGone(resolve))
  const options: BridgeOptions = { redisUrl: redis, token, port: flags.port, host: flags.host }
  const { startBridge } = await import('../rest-bridge/bridge.ts')
  const log = (line: string) => console.error(line)
  const running = await startBridge({ ...options, deadlineMs: flags.deadline * 1000, log }).catch(error => {
    if (error.code === 'EADDRINUSE') {
      throw new Error(`Port ${flags.port} is in use. Free it, or choose another one with --port.`)
    }
    throw error
  })
  console.log(`The bridge is ready on ${running.url}${running.isCluster ? ', in front of a cluster' : ''}`)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => running.close())
  void npmIsGone.then(() => running.close())
}

/** `npx sluicegate bridge`: the REST bridge alone, for those who host their own Redis. */
import { Command } from 'commander'
import { AdminError } from '../../ops/admin-error.ts'
import type { BridgeOptions } from '../rest-bridge/bridge.ts'
import { port, redisUrl, seconds } from './arguments.ts'
import { whenNpmIsGone } from './npm-parent.ts'

interface Flags {
  redis?: string
  token?: string
  port: number
  host: string
  deadline: number
}

export function bridgeCommand(): Command {
  return new Command('bridge')
    .description("Serve Upstash's REST protocol in front of a Redis or Valkey.")
    .option(
      '--redis <url>',
      'redis://…, rediss://… or unix://…; of a cluster, any node (default: $REDIS_URL)',
      redisUrl,
    )
    .option('--token <token>', 'that callers must present (default: $SLUICE_BRIDGE_TOKEN)')
    .option('--port <port>', 'to listen on', port, 8079)
    .option('--host <address>', 'to listen on; 0.0.0.0 for every interface', '127.0.0.1')
    .option('--deadline <seconds>', 'for one command', seconds, 2)
    .action(bridge)
}

async function bridge(flags: Flags): Promise<void> {
  const redis = flags.redis ?? process.env.REDIS_URL
  const token = flags.token ?? process.env.SLUICE_BRIDGE_TOKEN
  if (!redis) throw new AdminError('usage', 'Which Redis? Give --redis redis://host:port, or set REDIS_URL.')
  if (!token)
    throw new AdminError(
      'usage',
      'Give --token, or set SLUICE_BRIDGE_TOKEN: whoever has it can read and write all data.',
    )

  // At once: who the parent of npm's shell was is no longer known when npm is gone.
  const npmIsGone = new Promise<void>(resolve => void whenNpmIsGone(resolve))
  const options: BridgeOptions = { redisUrl: redisUrl(redis), token, port: flags.port, host: flags.host }
  const { startBridge } = await import('../rest-bridge/bridge.ts')
  const say = (line: string) => console.error(line)
  const running = await startBridge({ ...options, deadlineMs: flags.deadline * 1000, say }).catch(error => {
    if (error.code === 'EADDRINUSE') {
      throw new Error(`Port ${flags.port} is taken. Free it, or choose another with --port.`)
    }
    throw error
  })
  console.log(`The bridge is ready on ${running.url}${running.isCluster ? ', in front of a cluster' : ''}`)
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.on(signal, () => running.close())
  void npmIsGone.then(() => running.close())
}

/** The script inside a Redis, for what docs/ says and shows: a decision at a given time takes no time to wait for. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Command, connectRedis, type Reply } from '../src/node/rest-bridge/redis-connection.ts'
import { startGuardian } from '../src/node/start/guardian.ts'
import { embeddedRedis, findServer, privateServer } from '../src/node/start/redis.ts'
import { decodeDecide, encodeDecide } from '../src/script/decide.ts'
import type { Evaluation, Outcome } from '../src/script/evaluation.ts'
import { DECIDE } from '../src/script/scripts.generated.ts'

export type Evaluate = (evaluation: Evaluation & { now: number }) => Promise<Outcome>

export interface DocsEngine {
  /** For people: which Redis it is. */
  redis: string
  evaluate: Evaluate
  send(command: Command): Promise<Reply>
  close(): Promise<void>
}

/** A server of its own where one is installed, Redis rather than Valkey; else the embedded one. */
export async function startEngine(): Promise<DocsEngine> {
  const guardian = startGuardian()
  const context = { guardian, directory: mkdtempSync(join(tmpdir(), 'sluice-docs-')) }
  const program = await findServer(['redis-server', 'valkey-server'])
  const redis = program
    ? await privateServer(program, context)
    : await embeddedRedis('no redis-server or valkey-server is on the PATH', context)
  const connection = await connectRedis(redis.url, 10_000)
  await connection.send(['SCRIPT', 'LOAD', DECIDE.plain.source])
  return {
    redis: redis.description,
    async evaluate(evaluation) {
      const { keys, args } = encodeDecide(evaluation)
      const reply = await connection.send([
        'EVALSHA',
        DECIDE.plain.sha1,
        String(keys.length),
        ...keys,
        ...args,
      ])
      return decodeDecide(textOf(reply), evaluation)
    },
    send: command => connection.send(command),
    async close() {
      connection.close()
      await redis.close()
      await guardian.dismiss()
    },
  }
}

/** Replies as the REST protocol gives them: text for Buffers. */
function textOf(reply: Reply): unknown {
  if (Array.isArray(reply)) return reply.map(textOf)
  return Buffer.isBuffer(reply) ? reply.toString() : reply
}

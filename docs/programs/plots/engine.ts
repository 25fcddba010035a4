/** Runs the script in a Redis for the figures and pictures of docs/. The time of each decision is given, so nothing has to wait. */
import { mkdtempSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { type Command, connectRedis, type Reply } from '../../../src/node/rest-bridge/redis-connection.ts'
import { startGuardian } from '../../../src/node/start/guardian.ts'
import { findServer, startEmbeddedRedis, startPrivateServer } from '../../../src/node/start/redis.ts'
import { decodeDecide, encodeDecide } from '../../../src/script/decide.ts'
import type { Evaluation, Outcome } from '../../../src/script/evaluation.ts'
import type { RuleSet } from '../../../src/script/rule-set-shape.ts'
import { ruleSetOf } from '../../../test/support/rule-set.ts'

export type Evaluate = (
  evaluation: Omit<Evaluation, 'ruleSet'> & { plans: readonly string[]; now: number },
) => Promise<Outcome>

export interface DocsEngine {
  /** For people: which Redis it is. */
  redis: string
  evaluate: Evaluate
  send(command: Command): Promise<Reply>
  close(): Promise<void>
}

/** Starts a private redis-server or, without one, a valkey-server. If neither is installed, starts the embedded Redis. */
export async function startEngine(): Promise<DocsEngine> {
  const guardian = startGuardian()
  const context = { guardian, directory: mkdtempSync(join(tmpdir(), 'sluice-docs-')) }
  const program = await findServer(['redis-server', 'valkey-server'])
  const redis = program
    ? await startPrivateServer(program, context)
    : await startEmbeddedRedis('no redis-server or valkey-server is on the PATH', context)
  const connection = await connectRedis(redis.url, 10_000)
  /** By the names, tags, limits and keys of the rules. */
  const ruleSets = new Map<string, RuleSet>()
  return {
    redis: redis.description,
    async evaluate({ plans, ...asked }) {
      const name = asked.rules.map(({ rule, key }) => `${rule.name} ${rule.tag} ${rule.limit} ${key}`).join()
      const known = ruleSets.get(name)
      const evaluation = { ...asked, ruleSet: known ?? ruleSetOf(asked.rules, { plans }) }
      const { script, keys, args } = encodeDecide(evaluation)
      if (!known) await connection.send(['SCRIPT', 'LOAD', script.plain.source])
      ruleSets.set(name, evaluation.ruleSet)
      const reply = await connection.send([
        ...['EVALSHA', script.plain.sha1, String(keys.length)],
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

/** The connection of one request to the API takes no reply that Redis cannot have sent. */
import { describe, expect, it } from 'vitest'
import { trackChanges } from '../../../src/set-ups/api/track-changes.ts'
import type { AdminConnection, Command } from '../../../src/store/admin-connection.ts'

const connectionWith = (reply: unknown) =>
  trackChanges({
    run: async () => reply,
    runEach: async (commands: readonly Command[]) => commands.map(() => reply),
  } as unknown as AdminConnection)

describe('replies', () => {
  it.each([
    ['ZRANGE', null],
    ['ZRANGE', 7],
    ['ZRANGE', 'text'],
    ['ZRANGE', [1, 2]],
    ['HGETALL', ['field']],
    ['HGETALL', ['field', 'value', 'field']],
    ['GET', ['text']],
    ['EXISTS', '1'],
  ] as const)('to %s that are %j are those of a store that fails', async (command, reply) => {
    const connection = connectionWith(reply)
    await expect(connection.run(command, 'key')).rejects.toMatchObject({ kind: 'store' })
    await expect(connection.runEach([[command, 'key']])).rejects.toMatchObject({ kind: 'store' })
    expect(connection.changeState()).toBe('none')
  })

  it.each([
    ['ZRANGE', []],
    ['ZRANGE', ['member', '1.5']],
    ['HGETALL', []],
    ['HGETALL', ['field', 'value']],
  ] as const)('to %s can be %j', async (command, reply) => {
    expect(await connectionWith(reply).run(command, 'key')).toEqual(reply)
  })
})

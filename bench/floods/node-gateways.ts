/** Several isolates of the gateway in Node, which share a flood. They answer the questions of both clients as one. */
import { type Child, startChild } from '../child.ts'
import type { FloodAnswer, FloodCommand } from './flood-client.ts'
import type { InnocentCommand, Sample } from './innocent-client.ts'
import type { NodeGatewaySettings } from './node-gateway.ts'
import type { Reply } from './raw-connection.ts'

/**
 * A refused request takes about 0.1 ms of CPU in Node, with the creation of its `Request`. So one thread cannot serve 10,000 a second,
 * but two can.
 */
export const ISOLATES = 2

/** More room for new objects, so that V8 collects garbage less often. The clients of the flood use the same heap. */
const FLAGS = ['--max-semi-space-size=64']

export interface NodeGateways {
  pids: readonly number[]
  send<Answer>(command: FloodCommand | InnocentCommand): Promise<Answer>
  close(): Promise<void>
}

export async function startNodeGateways(
  settings: NodeGatewaySettings,
  bed: Parameters<typeof startChild>[2],
): Promise<NodeGateways> {
  const isolates: Child<object>[] = []
  for (let i = 0; i < ISOLATES; i++)
    isolates.push(await startChild<object>('floods/node-gateway.ts', settings, { ...bed, flags: FLAGS }))

  async function sendToAll<T>(command: FloodCommand | InnocentCommand): Promise<T[]> {
    return await Promise.all(isolates.map(isolate => isolate.send<T>(command)))
  }

  async function send(command: FloodCommand | InnocentCommand): Promise<unknown> {
    switch (command.do) {
      case 'send': {
        const targets = command.toAll ? isolates : isolates.slice(0, 1)
        return sumOf(
          await Promise.all(targets.map(isolate => isolate.send<Record<Reply, number>>(command))),
          targets.length,
        )
      }
      case 'prepare':
        return await sendToAll({ ...command, count: command.count / ISOLATES })
      case 'stream':
        return together(await sendToAll<FloodAnswer>({ ...command, perSecond: command.perSecond / ISOLATES }))
      case 'start':
        return await sendToAll({ ...command, perSecond: command.perSecond / ISOLATES })
      case 'look': {
        const each = { ...command, count: Math.ceil(command.count / ISOLATES) }
        return inOrder(await sendToAll<Sample[]>(each)).slice(-command.count)
      }
      case 'stop':
        return inOrder(await sendToAll<Sample[]>(command))
      default:
        throw new Error(`Without connections, this is not possible: ${command.do}`)
    }
  }

  return {
    pids: isolates.map(({ pid }) => pid),
    send: <T>(command: FloodCommand | InnocentCommand) => send(command) as Promise<T>,
    async close() {
      await Promise.all(isolates.map(isolate => isolate.close()))
    },
  }
}

function together(answers: readonly FloodAnswer[]): FloodAnswer {
  const seconds = answers[0]!.seconds!.map((_, i) => {
    const each = answers.map(answer => answer.seconds![i]!)
    return { sent: sum(each.map(({ sent }) => sent)), scriptCalls: sum(each.map(one => one.scriptCalls)) }
  })
  const pauses = answers.flatMap(({ shortestPauseMs }) => shortestPauseMs ?? [])
  return {
    replies: sumOf(answers.map(({ replies }) => replies)),
    startedAt: Math.min(...answers.map(({ startedAt }) => startedAt)),
    endedAt: Math.max(...answers.map(({ endedAt }) => endedAt)),
    notSent: sum(answers.map(({ notSent }) => notSent)),
    seconds,
    ...(pauses.length > 0 && { shortestPauseMs: Math.min(...pauses) }),
  }
}

/** @param divisor the number of isolates, if each has got all requests */
function sumOf(all: readonly Record<Reply, number>[], divisor = 1): Record<Reply, number> {
  const kinds = new Set(all.flatMap(replies => Object.keys(replies)))
  return Object.fromEntries(
    [...kinds].map(kind => [kind, sum(all.map(replies => replies[kind] ?? 0)) / divisor]),
  )
}

const sum = (values: readonly number[]) => values.reduce((total, value) => total + value, 0)

const inOrder = (samples: readonly Sample[][]) => samples.flat().sort((a, b) => a.sentAt - b.sentAt)

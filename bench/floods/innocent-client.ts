/** The process of the innocent callers: sends requests at a fixed rate, without waiting for replies. */
import { handleCommands, reportReady } from '../child.ts'
import { NO_REPLY, openConnection, type RawConnection, type Reply } from './raw-connection.ts'
import { type Caller, requestText } from './requests.ts'
import { wallClock } from './wall-clock.ts'

export type InnocentCommand =
  /** The requests come from the callers in turn, on connections to the isolates in turn. */
  | { do: 'start'; urls: readonly string[]; callers: readonly Caller[]; path: string; perSecond: number }
  /** Returns the last `count` replies. */
  | { do: 'look'; count: number }
  /** Stops, and returns all replies. */
  | { do: 'stop' }

export interface Sample {
  /** By wall-clock.ts. */
  sentAt: number
  tookMs: number
  reply: Reply
}

const TIMEOUT_MS = 10_000

let samples: Sample[] = []
let timer: NodeJS.Timeout | undefined
let waiting = 0
/** Free connections to each isolate. Each has one request at a time, so that no request waits for another. */
let idle = new Map<string, RawConnection[]>()

handleCommands(async (command: InnocentCommand) => {
  switch (command.do) {
    case 'start':
      return start(command)
    case 'look':
      return samples.slice(-command.count)
    case 'stop':
      return await stop()
  }
})
reportReady({})

function start({ urls, callers, path, perSecond }: Extract<InnocentCommand, { do: 'start' }>): void {
  const texts = callers.map(caller => requestText(path, caller))
  const startedAt = performance.now()
  let begun = 0
  timer = setInterval(() => {
    const due = ((performance.now() - startedAt) * perSecond) / 1000
    for (; begun < due; begun++) void sendOne(urls[begun % urls.length]!, texts[begun % texts.length]!)
  }, 5)
}

async function sendOne(url: string, text: string): Promise<void> {
  waiting += 1
  const sentAt = wallClock()
  const connection = await freeConnection(url).catch(() => undefined)
  const reply = connection ? await replyOn(connection, url, text) : NO_REPLY
  samples.push({ sentAt, tookMs: wallClock() - sentAt, reply })
  waiting -= 1
}

async function freeConnection(url: string): Promise<RawConnection> {
  const own = idle.get(url) ?? []
  for (let free = own.pop(); free; free = own.pop()) if (!free.isClosed()) return free
  return await openConnection(url)
}

function replyOn(connection: RawConnection, url: string, text: string): Promise<Reply> {
  return new Promise(resolve => {
    const timeout = setTimeout(() => connection.close(), TIMEOUT_MS)
    connection.send([text], reply => {
      clearTimeout(timeout)
      if (reply !== NO_REPLY) idle.set(url, [...(idle.get(url) ?? []), connection])
      resolve(reply)
    })
  })
}

async function stop(): Promise<Sample[]> {
  clearInterval(timer)
  while (waiting > 0) await new Promise(resolve => setTimeout(resolve, 5))
  for (const connection of [...idle.values()].flat()) connection.close()
  const all = samples
  idle = new Map()
  samples = []
  return all
}

/** A client that sends any bytes, and reads the replies strictly. */
import { connect } from 'node:net'
import { pause, type Step, takeSteps } from './steps.ts'
import { MalformedMessage, type Message, readMessage, statusOf } from './wire.ts'

export interface Client {
  /** Final replies, also the last one if it has not ended. */
  readonly replies: readonly Message[]
  /** What the gateway has sent against RFC 9112. */
  readonly malformed: string | undefined
  readonly isClosed: boolean
  readonly text: string
  send(steps: Iterable<Step>): Promise<void>
  /** Waits for whole replies, or for the end of the connection. @returns false if neither has come in time */
  until(replies: number, timeoutMs: number): Promise<boolean>
  destroy(): void
}

/** @param methods of the requests in turn; GET after the last one */
export function openClient(url: string, methods: readonly string[] = []): Client {
  const { hostname, port } = new URL(url)
  const socket = connect({ host: hostname, port: Number(port), noDelay: true, allowHalfOpen: true })
  let text = ''
  let isClosed = false
  let state: { replies: Message[]; malformed?: string } = { replies: [] }
  let wake = () => {}
  function read(): void {
    const replies: Message[] = []
    let rest = text
    try {
      for (;;) {
        const message = readMessage(rest, methods[replies.length] ?? 'GET', isClosed)
        if (!message) break
        if (statusOf(message) >= 200) replies.push(message)
        if (!message.isWhole) {
          rest = ''
          break
        }
        rest = rest.slice(message.length)
      }
      state = { replies }
      if (isClosed && rest !== '') state.malformed = `ends with ${JSON.stringify(rest.slice(0, 200))}`
    } catch (error) {
      if (!(error instanceof MalformedMessage)) throw error
      state = { replies, malformed: error.message }
    }
    wake()
  }
  socket.on('error', () => {})
  socket.on('data', data => {
    text += data.toString('latin1')
    read()
  })
  const end = () => {
    isClosed = true
    socket.destroy()
    read()
  }
  socket.on('end', end)
  socket.on('close', end)
  const isDone = (count: number) =>
    isClosed ||
    state.malformed !== undefined ||
    state.replies.filter(({ isWhole }) => isWhole).length >= count
  return {
    get replies() {
      return state.replies
    },
    get malformed() {
      return state.malformed
    },
    get isClosed() {
      return isClosed
    },
    get text() {
      return text
    },
    send: steps => takeSteps(socket, steps),
    async until(count, timeoutMs) {
      const late = pause(timeoutMs).then(() => true)
      while (!isDone(count)) {
        const changed = new Promise<false>(resolve => {
          wake = () => resolve(false)
        })
        if (await Promise.race([late, changed])) return isDone(count)
      }
      return true
    },
    destroy: () => void socket.destroy(),
  }
}

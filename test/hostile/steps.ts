/** What a hostile end of a connection does, step by step. */
import type { Socket } from 'node:net'

/** Closes its own direction only. */
export const FIN = Symbol('FIN')
/** Closes both directions. */
export const CLOSE = Symbol('CLOSE')
/** Resets the connection. */
export const RESET = Symbol('RESET')

/** Bytes (Latin-1) to write, a pause (ms), or an end. */
export type Step = string | number | typeof FIN | typeof CLOSE | typeof RESET

export async function takeSteps(socket: Socket, steps: Iterable<Step>): Promise<void> {
  for (const step of steps) {
    if (socket.destroyed) return
    if (typeof step === 'string') {
      if (!socket.writable) return
      if (!socket.write(step, 'latin1')) await drained(socket)
    } else if (typeof step === 'number') await pause(step)
    else if (step === FIN) socket.end()
    else if (step === CLOSE) socket.destroy()
    else socket.resetAndDestroy()
  }
}

export const pause = (ms: number) =>
  new Promise<void>(resolve => (ms === 0 ? setImmediate(resolve) : setTimeout(resolve, ms)))

const drained = (socket: Socket) =>
  new Promise<void>(resolve => {
    socket.once('drain', resolve)
    socket.once('close', () => resolve())
  })

/**
 * Reads a connection only as fast as its response is passed on. undici can pause its parser instead. But if the origin closes the connection
 * meanwhile, undici (7.30) ends the process, or loses the end of the response.
 */
import type { Socket } from 'node:net'

export interface Reading {
  /** One more chunk may arrive. */
  pause(): void
  resume(): void
}

/** @param socket nothing has read it before */
export function paceReading(socket: Socket): Reading {
  const { _read, push } = socket
  let isPaused = false
  /** How many bytes were asked for meanwhile. */
  let asked: number | undefined
  socket._read = size => {
    if (isPaused) asked = size
    else _read.call(socket, size)
  }
  // `false` stops the reading.
  socket.push = (...chunk) => push.apply(socket, chunk) && !isPaused
  return {
    pause() {
      isPaused = true
    },
    resume() {
      isPaused = false
      if (asked === undefined || socket.destroyed) return
      _read.call(socket, asked)
      asked = undefined
    },
  }
}

/**
 * Connections that the primary process has handed to a worker which dies before it takes them. `node:cluster` (24.21) forgets them: they
 * stay open, and their clients wait for ever. They are given to another worker instead.
 */
import cluster, { type Worker } from 'node:cluster'

/** The messages of `node:cluster` that hand over a connection, and that confirm it. */
interface ClusterMessage {
  cmd?: string
  act?: string
  seq?: number
  ack?: number
}

export function passOnUntaken(worker: Worker): void {
  const child = worker.process as Worker['process'] & { _handleQueue?: unknown }
  const untaken = new Map<number, { fd: number }>()
  const send = child.send.bind(child) as (...args: unknown[]) => boolean
  child.send = ((message: ClusterMessage, handle?: { fd: number }, ...rest: unknown[]) => {
    if (message.cmd === 'NODE_CLUSTER' && message.act === 'newconn' && handle)
      untaken.set(message.seq!, handle)
    return send(message, handle, ...rest)
  }) as typeof child.send
  child.on('internalMessage', ({ ack }: ClusterMessage) => {
    if (ack !== undefined) untaken.delete(ack)
  })
  const disconnect = child.disconnect.bind(child)
  // Node calls it when the worker has closed its end. While a handed connection is unconfirmed, Node has a queue, and puts off the event
  // until the dead worker confirms it: for ever.
  child.disconnect = () => {
    child._handleQueue = null
    disconnect()
  }
  // If a message can no longer be sent. Without a listener, it would end this process.
  worker.on('error', () => {})
  // The event comes after the last message of the worker.
  worker.once('disconnect', () => {
    const hasOthers = Object.values(cluster.workers ?? {}).some(
      other => other !== worker && (other as Worker & { state: string }).state === 'listening',
    )
    for (const [seq, handle] of untaken) {
      // Node has closed the one that was being sent. What counts as accepted is closed, and what does not is given to another worker.
      const accepted = handle.fd < 0 || !hasOthers
      child.emit('internalMessage', { cmd: 'NODE_CLUSTER', ack: seq, accepted })
    }
    untaken.clear()
  })
}

/** Reads the heap usage of the Worker's isolate from V8's inspector. */

export interface Heap {
  /** Bytes in use, including garbage that has not been collected yet. */
  used(): Promise<number>
  close(): void
}

interface Target {
  id: string
  webSocketDebuggerUrl: string
}

export async function inspectHeap(inspectorUrl: string): Promise<Heap> {
  const list = await fetch(`http://${new URL(inspectorUrl).host}/json`)
  const targets = (await list.json()) as Target[]
  const worker = targets.find(({ id }) => id.endsWith(':sluice'))
  if (!worker)
    throw new Error(`The inspector knows no Worker among ${targets.map(({ id }) => id).join(', ')}.`)
  const socket = new WebSocket(worker.webSocketDebuggerUrl)
  await new Promise((resolve, reject) => {
    socket.onopen = resolve
    socket.onerror = reject
  })
  let lastId = 0
  const waiting = new Map<number, (bytes: number) => void>()
  socket.onmessage = ({ data }) => {
    const { id, result } = JSON.parse(String(data)) as { id: number; result?: { usedSize: number } }
    if (result) waiting.get(id)?.(result.usedSize)
    waiting.delete(id)
  }
  return {
    used: () =>
      new Promise(resolve => {
        lastId += 1
        waiting.set(lastId, resolve)
        socket.send(JSON.stringify({ id: lastId, method: 'Runtime.getHeapUsage' }))
      }),
    close: () => socket.close(),
  }
}

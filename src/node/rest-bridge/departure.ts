/**
 * Whether a command has left: node-redis has passed it to the socket, so the server may get it. Until then it waits in a queue of
 * node-redis, from which it can be called off.
 *
 * node-redis has no event for this. But it listens to the `abortSignal` of a command exactly as long as the command waits in its queue, so
 * this is such a signal. It stops listening when it writes the command, and also when it drops all of its queue because the connection is
 * gone. Then the client is no longer ready.
 */
export class Departure {
  /** As in AbortSignal. */
  aborted = false
  #hasLeft = false
  #client: { readonly isReady: boolean } | undefined
  #drop: (() => void) | undefined

  get hasLeft(): boolean {
    return this.#hasLeft
  }

  /** A command is about to be given to a client: the first time, or again because the server has redirected it. */
  begin(client: { readonly isReady: boolean }): void {
    this.#hasLeft = false
    this.#client = client
  }

  /** Removes the command from the queue, unless it has left. */
  callOff(): void {
    this.aborted = true
    this.#drop?.()
  }

  /** As in AbortSignal. */
  addEventListener(_: 'abort', drop: () => void): void {
    this.#drop = drop
  }

  /** As in AbortSignal. */
  removeEventListener(): void {
    this.#drop = undefined
    // When it is called off, the client removes its listener as well.
    if (!this.aborted) this.#hasLeft = this.#client!.isReady
  }
}

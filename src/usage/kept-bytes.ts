/** Bytes that arrive in chunks, copied into one buffer. A list of the chunks would take a hundred bytes and more for each of them. */
export class KeptBytes {
  #buffer = new Uint8Array()
  #length = 0

  get length(): number {
    return this.#length
  }

  add(part: Uint8Array): void {
    const length = this.#length + part.byteLength
    if (length > this.#buffer.byteLength) {
      const larger = new Uint8Array(2 * length)
      larger.set(this.#buffer)
      this.#buffer = larger
    }
    this.#buffer.set(part, this.#length)
    this.#length = length
  }

  /** @returns all bytes, which are then no longer kept */
  take(): Uint8Array<ArrayBuffer> {
    const bytes = this.#buffer.subarray(0, this.#length)
    this.#buffer = new Uint8Array()
    this.#length = 0
    return bytes
  }
}

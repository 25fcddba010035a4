/**
 * Asks for the usage of a streamed completion, which OpenAI's servers report only to requests that ask for it. Edits the body on its way, and
 * keeps none of it. All other bytes stay as they are.
 */
import { JsonScanner, OPEN_OBJECT } from './json-scanner.ts'

const OPTIONS = 'stream_options'
const ASKING = '{"include_usage":true}'

/** No client has several of such options, so a body does not get longer than this (bytes). */
export const MAX_ADDED = 64

export interface UsageAsker {
  /** @returns the bytes to send for this chunk */
  edit(chunk: Uint8Array): Uint8Array[]
  /** The client has not asked for the usage itself. */
  hasAsked(): boolean
}

/** @param isWanted called at each place where the request could ask, and at its end */
export function createUsageAsker(isWanted: (isEnd: boolean) => boolean): UsageAsker {
  let chunk = new Uint8Array() as Uint8Array
  let out: Uint8Array[] = []
  /** Where the bytes begin that are sent together; undefined: they are left out. */
  let from: number | undefined = 0
  let hasOptions = false
  let hasAsked = false
  /** The options have a member `include_usage`. */
  let asks = false
  /** The depth of the value that was replaced. */
  let replaced: number | undefined

  function insert(at: number, text: string): void {
    if (from !== undefined && at > from) out.push(chunk.subarray(from, at))
    out.push(new TextEncoder().encode(text))
    from = at
    hasAsked = true
  }

  function replace(at: number, depth: number, text: string): void {
    insert(at, text)
    from = undefined
    replaced = depth
  }

  const isOptions = (depth: number) => depth >= 1 && json.path[0] === OPTIONS && replaced === undefined

  const json = new JsonScanner({
    begin(first, depth, at) {
      if (!isOptions(depth) || !isWanted(false)) return 0
      if (depth === 1) {
        hasOptions ||= json.names[0] === OPTIONS
        asks = false
        if (first !== OPEN_OBJECT) replace(at, depth, ASKING)
      } else if (depth === 2 && json.path[1] === 'include_usage') {
        asks ||= json.names[1] === 'include_usage'
        // `true`; another word is replaced.
        if (first !== FIRST_OF_TRUE) replace(at, depth, 'true')
      }
      return 0
    },
    close(depth, at, isEmpty) {
      if (depth === 2 && isOptions(depth) && !asks && json.isObjectOpen && isWanted(false))
        insert(at, `${isEmpty ? '' : ','}"include_usage":true`)
      if (depth === 1 && !hasOptions && json.isObjectOpen && isWanted(true))
        insert(at, `${isEmpty ? '' : ','}"${OPTIONS}":${ASKING}`)
    },
    end(depth, at) {
      if (replaced !== depth) return
      replaced = undefined
      from = at
    },
  })

  return {
    edit(next) {
      chunk = next
      out = []
      if (from !== undefined) from = 0
      json.feed(chunk)
      if (from !== undefined && from < chunk.length) out.push(chunk.subarray(from))
      return out
    },
    hasAsked: () => hasAsked,
  }
}

const FIRST_OF_TRUE = 't'.charCodeAt(0)

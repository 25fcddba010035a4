/**
 * Upstash runs scripts side by side when their first line is `#!lua flags=allow-key-locking`; Redis and Valkey
 * refuse that flag. The bridge takes it out and remembers which SHA-1 the caller knows each such script by.
 */
import { createHash } from 'node:crypto'

type Command = readonly (string | Buffer)[]

const SHEBANG = /^#!lua([^\n]*)\n/
const FLAG = 'allow-key-locking'
/** Bounds the memory if a caller sends many different scripts. After NOSCRIPT, the caller sends a forgotten script again. */
const MAX_ALIASES = 1000

export class ScriptAliases {
  /** SHA-1 as the caller computes it → SHA-1 of what Redis was given. */
  readonly #aliases = new Map<string, string>()

  /** The command as Redis understands it. */
  translate(command: Command): Command {
    const name = String(command[0]).toUpperCase()
    if (name === 'EVAL' || name === 'EVAL_RO') {
      const [word, source = '', ...rest] = command
      return [word!, this.#withoutFlag(String(source)), ...rest]
    }
    if (name === 'EVALSHA' || name === 'EVALSHA_RO') {
      const [word, sha = '', ...rest] = command
      return [word!, this.#known(String(sha)), ...rest]
    }
    if (name !== 'SCRIPT') return command
    switch (String(command[1] ?? '').toUpperCase()) {
      case 'LOAD':
        return ['SCRIPT', 'LOAD', this.#withoutFlag(String(command[2] ?? ''))]
      case 'EXISTS':
        return ['SCRIPT', 'EXISTS', ...command.slice(2).map(sha => this.#known(String(sha)))]
      default:
        return command
    }
  }

  /** What SCRIPT LOAD answers: the SHA-1 of the text that the caller sent, whatever was made of it. */
  static loadedAs(command: Command): string | undefined {
    const isLoad = /^script$/i.test(String(command[0])) && /^load$/i.test(String(command[1] ?? ''))
    return isLoad ? sha1(String(command[2] ?? '')) : undefined
  }

  #known(sha: string): string {
    return this.#aliases.get(sha.toLowerCase()) ?? sha
  }

  #withoutFlag(source: string): string {
    const [line, options = ''] = SHEBANG.exec(source) ?? []
    if (!line?.includes(FLAG)) return source
    const flags = /flags=(\S+)/.exec(options)?.[1]?.split(',') ?? []
    const others = flags.filter(flag => flag !== FLAG)
    // The line stays, empty if need be, so that errors name the caller's line numbers.
    const first = others.length > 0 ? `#!lua flags=${others.join(',')}` : ''
    const rewritten = `${first}\n${source.slice(line.length)}`

    if (this.#aliases.size >= MAX_ALIASES) this.#aliases.delete(this.#aliases.keys().next().value!)
    this.#aliases.set(sha1(source), sha1(rewritten))
    return rewritten
  }
}

function sha1(text: string): string {
  return createHash('sha1').update(text).digest('hex')
}

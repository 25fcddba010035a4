/** The error for an invalid config, or for missing or invalid variables. It lists all mistakes, each with its path, value and fix. */
import { GatewayError } from '../errors.ts'

export interface Mistake {
  /** The path of the setting: `rules[2].period` */
  path: string
  /** `'1 sec' is not a duration. Write …` */
  message: string
  /** The line of the setting in its file. Absent: unknown. */
  line?: number
}

/**
 * Thrown for a config with mistakes, when a set-up is created from it or a command reads it, and for variables of the environment that
 * are missing or not valid. `createLimiter` throws it in both cases. Set-ups that serve requests read the variables with the first
 * request, and reply with a 503. `code` is `ERR_CONFIG_INVALID`. The message lists all mistakes, without the values of variables.
 */
export class ConfigError extends GatewayError {
  /** All mistakes that were found, with path and fix. */
  readonly mistakes: readonly Mistake[]

  /** @param file that has the mistakes, where that is known */
  constructor(mistakes: readonly Mistake[], file?: string) {
    const count = mistakes.length === 1 ? '1 mistake' : `${mistakes.length} mistakes`
    const lines = mistakes.map(mistake => `  ${mistakeText(mistake, file)}`)
    const what = mistakes.every(({ path }) => VARIABLE.test(path)) ? 'environment' : 'config'
    super('ERR_CONFIG_INVALID', [`The ${what} has ${count}:`, ...lines].join('\n'))
    this.mistakes = mistakes
  }
}

/** A variable of the environment. Settings of the config are not in capitals. */
const VARIABLE = /^[A-Z][A-Z\d_]*$/

/** `sluice.config.ts:12: rules[0].limit: 0 is not an amount. …`, or without the file where that is not known. */
export function mistakeText({ path, message, line }: Mistake, file?: string): string {
  const place = file === undefined ? [] : [line === undefined ? file : `${file}:${line}`]
  return [...place, path, message].join(': ')
}

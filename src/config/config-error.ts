/** The error for an invalid config. It lists all mistakes, each with its path, value and fix. */
import { GatewayError } from '../errors.ts'

export interface Mistake {
  /** The path of the setting: `rules[2].period` */
  path: string
  /** `'1 sec' is not a duration. Write …` */
  message: string
}

export class ConfigError extends GatewayError {
  readonly mistakes: readonly Mistake[]

  constructor(mistakes: readonly Mistake[]) {
    const count = mistakes.length === 1 ? '1 mistake' : `${mistakes.length} mistakes`
    const lines = mistakes.map(mistake => `  ${mistake.path}: ${mistake.message}`)
    super('ERR_CONFIG_INVALID', [`The config has ${count}:`, ...lines].join('\n'))
    this.mistakes = mistakes
  }
}

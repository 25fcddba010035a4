/** The warnings about a valid config, as lines with the file and the line of each setting. */
import type { ConfigInput } from '../config/check/schema.ts'
import { type Warning, warningsOf } from '../config/check/warnings.ts'
import { mistakeText } from '../config/config-error.ts'
import { locate, shortPath } from './config-lines.ts'

/** @param input a config without mistakes @param others warnings from other sources */
export function locatedWarnings(
  input: ConfigInput,
  file: string,
  others: readonly Warning[] = [],
): Warning[] {
  return locate([...warningsOf(input), ...others], file)
}

export const warningLine = (warning: Warning, file: string) => mistakeText(warning, shortPath(file))

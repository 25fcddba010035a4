/** The table of what a rule can count by: the parts of src/config/identity-parts.ts and their doc comments. */
import { type IdentityPart, identityParts } from '../../../src/config/identity-parts.ts'
import type { Table } from '../markdown-tables.ts'
import type { Shape } from './doc-comments.ts'

export interface PartRow {
  /** As it is written in a config: `'header:<name>'`. */
  written: string
  meaning: string
  /** What happens where a request has no value; empty: every request has one. */
  without: string
}

/** @param shape the doc comments of the identity parts */
export function readParts([shape]: readonly Shape[]): PartRow[] {
  return Object.entries<IdentityPart>(identityParts).map(([part, { needs, isNamed }]) => {
    const comment = shape?.get(part)?.comment.replaceAll('\n', ' ') ?? ''
    const [meaning = '', otherwise] = comment.split(' Without: ')
    const notApplied = needs && `without a ${needs}, the rule does not apply`
    const without = [notApplied, otherwise?.replace(/\.$/, '')].filter(Boolean).join('; ')
    return { written: isNamed ? `'${part}:<name>'` : `'${part}'`, meaning, without }
  })
}

export function tableOfParts(parts: readonly PartRow[]): Table {
  return {
    head: ['part', 'counts separately', 'if a request has none'],
    rows: parts.map(({ written, meaning, without }) => [`\`${written}\``, meaning, without]),
  }
}

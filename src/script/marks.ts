/** The marks of identities and rules in ARGV[2], a letter each (decide.ts). */
export const MARKS = { absent: '0', present: '1', enforce: 'e', shadow: 's', staysShadow: 'S' } as const

/** The parts of wrangler.toml that Sluice reads. */

/** `compatibility_date` and `compatibility_flags` of the top level. Absent: the file does not set them. */
export function compatibilityIn(toml: string): { date?: string; flags: string[] } {
  const [, date] = /^compatibility_date\s*=\s*"([^"]+)"/m.exec(toml) ?? []
  const [, flags = ''] = /^compatibility_flags\s*=\s*\[([^\]]*)\]/m.exec(toml) ?? []
  return {
    ...(date !== undefined && { date }),
    flags: [...flags.matchAll(/["']([^"']+)["']/g)].map(([, flag]) => flag!),
  }
}

/** Whether a custom domain leads to the Worker, in any environment of the file. */
export const hasCustomDomain = (toml: string): boolean => /^[^#\n]*\bcustom_domain\s*=\s*true\b/m.test(toml)

/** The colors of the pictures, which are those of GitHub's themes. Text has a contrast of at least 4.5 on its ground in both. */
interface Colors {
  ground: string
  box: string
  border: string
  ink: string
  faint: string
  go: string
  stop: string
}

const LIGHT: Colors = {
  ground: '#ffffff',
  box: '#f6f8fa',
  border: '#d1d9e0',
  ink: '#1f2328',
  faint: '#59636e',
  go: '#1a7f37',
  stop: '#bc4c00',
}
const DARK: Colors = {
  ground: '#0d1117',
  box: '#151b23',
  border: '#3d444d',
  ink: '#f0f6fc',
  faint: '#9198a1',
  go: '#3fb950',
  stop: '#f0883e',
}

/** Written out for each scheme: not every renderer knows variables of CSS. @param rules the CSS for a scheme */
export const inBothSchemes = (rules: (colors: Colors) => string): string =>
  `${rules(LIGHT).trim()}\n@media (prefers-color-scheme: dark) {${rules(DARK)}}`

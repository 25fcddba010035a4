/** `npm run package`: compiles what the package ships into dist/, and completes the template. */
import { execFileSync } from 'node:child_process'
import { copyFileSync, globSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'

const ROOT = fileURLToPath(new URL('../', import.meta.url))
const TSC = fileURLToPath(new URL('../node_modules/typescript/bin/tsc', import.meta.url))

rmSync(`${ROOT}dist`, { recursive: true, force: true })
// The second project overwrites the files that both compile, so their types do not need the types of Node.
for (const project of ['tsconfig.build-node.json', 'tsconfig.build.json'])
  execFileSync(process.execPath, [TSC, '-p', project], { cwd: ROOT, stdio: 'inherit' })

// The compiler writes the new extensions into JavaScript, and not into types.
for (const file of globSync('dist/**/*.d.ts', { cwd: ROOT })) {
  const text = readFileSync(ROOT + file, 'utf8')
  writeFileSync(ROOT + file, text.replaceAll(/(from |import\()('|")(\.[^'"]*)\.ts\2/g, '$1$2$3.js$2'))
}

// npm leaves .gitignore out of packages. `init` renames the copy to .gitignore.
copyFileSync(`${ROOT}template/.gitignore`, `${ROOT}template/gitignore`)

// Crawls every HTML page of the sites with spider (Rust), link by link, all in memory: node spider.js FILE-OF-URLS
import { readFileSync } from 'node:fs'
import { createRequire } from 'node:module'

const { Website, pageTitle } = createRequire(import.meta.url)('@spider-rs/spider-rs-linux-x64-gnu')
const pages = []
const keep = (error, page) => {
  if (!error) pages.push({ url: page.url, title: pageTitle(page) })
}
const urls = readFileSync(process.argv[2], 'utf8').split(/\s+/).filter(Boolean)
await Promise.all(urls.map((url) => new Website(url).crawl(keep)))
console.log(pages.length)
process.exit() // it keeps its connections, and with them the process, for a minute more

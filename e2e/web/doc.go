// Package web tests the page of rdmalab web in a headless Chromium on a rack. Its specs have the build tag
// chromium, so that make test does not need the browser: make e2e-web runs them.
package web

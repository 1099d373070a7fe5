// Package web shows a rack in a browser: one page without a build step, embedded in the program, and
// the API that the page uses, of which openapi.json is the description.
//
//	server.go    a listener and an HTTP server with bounds
//	guard.go     who may ask: Host, Origin, token
//	site.go      the routes
//	rack.go      the state of a rack as the API tells it
//	hub.go       one sampler for all pages that are open, and the last minutes
//	nodes.go     objects and counters of a node
//	control.go   what changes the rack: each request runs a command of this program
//	recorder.go  the last packets, for a ladder
//	page         the page
//
// The page reads and changes nothing by itself: without Config.Token all requests that change a rack are
// refused. Serve bounds connections and times, the Site the work that it does at a time.
package web

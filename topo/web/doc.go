// Package web serves HTTP for commands: with a bound on connections, headers and the time that a
// client may take.
package web

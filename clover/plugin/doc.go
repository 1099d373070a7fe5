// Package plugin registers the store Clover: its part in the daemon of a host, which runs the
// metadata server and clients, and its commands.
package plugin

// Package plugin registers the store FUSEE: its part in the daemon of a host, which tells the host
// where the table is, and its commands.
package plugin

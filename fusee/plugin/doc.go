// Package plugin registers the store FUSEE: its part of a host's daemon, which knows where the
// table is, and its commands.
package plugin

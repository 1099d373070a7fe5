// Package plugin registers the store Clover: its part of a host's daemon, which runs the metadata
// server and clients, and its commands.
package plugin

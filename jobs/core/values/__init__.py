"""SQL values: conversion from and to JSON, rounding, and order keys."""

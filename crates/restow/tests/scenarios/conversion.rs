//! Conversions: checked, carried out, resumed, refused, rolled back, suspended and deleted; judged by what is stored.

mod fixture;

mod carried_out;
mod in_place;
mod interrupted;
mod refused;
